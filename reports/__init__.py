"""What a run leaves behind: schema, store and renderers. Depends on nothing else of the kit."""
