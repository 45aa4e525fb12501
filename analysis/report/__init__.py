"""The report: `frames` are tidy frames of folders, `gather` what is reported of them, `page` the page.

`commands` is the command; report.html, beside it, is the template.
"""
