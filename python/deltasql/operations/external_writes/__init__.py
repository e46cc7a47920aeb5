"""Stage files that another program wrote: new files, rewritten files, or the actions for them."""
