one:
  test:
    - succeed_with_changes
two:
  test:
    - nop
    - require:
      - test: one
