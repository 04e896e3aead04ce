"""The wheel as a user has it: in clean environments, with one extra or a documented combination."""
