bad: test.fail_with_changes
not:
  test.nop:
    - onchanges:
      - test: bad
after not:
  test.nop:
    - require:
      - test: not
