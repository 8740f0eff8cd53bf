"""Selection rules of other papers, each in one file, on the public parts of the package alone."""

COMPARED = ("dbpd", "srd", "rs2", "seta", "ies", "orderdp", "divbs")  # the others need scores first
