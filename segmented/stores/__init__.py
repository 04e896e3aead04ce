"""Where operations run: `memory` is the readable reference model, `redis` the real thing."""
