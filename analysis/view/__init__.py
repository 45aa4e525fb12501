"""The trajectory viewer: `data` is a run as the page reads it, `page` the page, `commands` the command.

view.html is the page's frame; view.js draws the episode that is looked at, and whatever a run holds as text.
"""
