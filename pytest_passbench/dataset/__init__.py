"""The data set: unique graphs of models that are built from configurations."""
