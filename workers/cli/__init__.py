"""Commands that need workers; each joins the command line through an entry point."""
