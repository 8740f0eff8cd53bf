"""The source papers and the study of the default, redone on the lab."""
