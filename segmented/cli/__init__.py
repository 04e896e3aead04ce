"""The command line: one file a command or command group; `main` finds them and runs one."""
