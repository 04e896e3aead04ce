"""How a pool's data leaves Redis: relayed, trimmed, forgotten, or archived as a whole."""
