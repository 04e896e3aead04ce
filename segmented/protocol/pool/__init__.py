"""Stock pools: opened, reserved from, granted, settled, restocked, resized."""
