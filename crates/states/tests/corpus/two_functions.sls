one:
  test:
    - nop
    - succeed_with_changes
