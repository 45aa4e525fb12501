"""Policies: models behind a server or in this process, scripted experts, recorded turns."""
