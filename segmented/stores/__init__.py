"""Where operations run: `memory` in this process, `redis` on a server, with the same scripts."""
