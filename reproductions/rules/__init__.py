"""Selection rules of other papers, each in one file, on the public parts of the package alone."""
