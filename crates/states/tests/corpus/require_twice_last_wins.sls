good: test.nop
bad: test.fail_without_changes
two:
  test.nop:
    - require:
      - test: bad
    - require:
      - test: good
