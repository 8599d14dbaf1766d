good: test.nop
bad: test.fail_without_changes
one is enough:
  test.nop:
    - require_any:
      - test: bad
      - test: good
none:
  test.nop:
    - require_any:
      - test: bad
