"""The command line: one file per command or command group; `main` finds them and runs one."""
