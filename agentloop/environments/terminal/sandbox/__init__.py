"""Sandboxes without a container engine: started over read-only layers, limited, forked, and compared."""
