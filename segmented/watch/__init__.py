"""See a sale while it runs: on the terminal, on a web page, and as metrics. Reads in bounded steps, changes nothing."""
