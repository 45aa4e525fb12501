"""The command line, figures and pages."""
