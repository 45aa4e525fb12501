"""Terminal tasks: nl2bash with its checker, and folders of Terminal-Bench and Harbor with their verifiers."""
