good: test.nop
bad: test.fail_without_changes
any:
  test.nop:
    - onfail_any:
      - test: good
      - test: bad
none:
  test.nop:
    - onfail_any:
      - test: good
