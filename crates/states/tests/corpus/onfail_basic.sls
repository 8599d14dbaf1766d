good: test.nop
bad: test.fail_without_changes
runs:
  test.nop:
    - onfail:
      - test: bad
not:
  test.nop:
    - onfail:
      - test: good
any:
  test.nop:
    - onfail:
      - test: good
      - test: bad
