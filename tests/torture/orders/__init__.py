"""`segmented torture orders`: submits orders, kills workers, and checks what became of every order."""
