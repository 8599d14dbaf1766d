bad: test.fail_without_changes
base:
  test.nop:
    - require:
      - test: bad
borrower:
  test.nop:
    - use:
      - test: base
