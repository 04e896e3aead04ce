"""Every code block of the README, the tutorial and the how-to pages, run as it is printed."""
