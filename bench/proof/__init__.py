"""Programs that try to break the promises: torture, durability, rebuilt stocks, and other libraries beside ours."""
