bad: test.fail_without_changes
blocked:
  test.nop:
    - failhard: True
    - require:
      - test: bad
never: test.nop
