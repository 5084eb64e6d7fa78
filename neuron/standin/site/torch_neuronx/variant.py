"""What a variant of the rehearsal changes in this package; nothing in the plain one."""
