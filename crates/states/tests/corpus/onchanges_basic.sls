changed: test.succeed_with_changes
same: test.nop
runs:
  test.nop:
    - onchanges:
      - test: changed
not:
  test.nop:
    - onchanges:
      - test: same
any of two:
  test.nop:
    - onchanges:
      - test: same
      - test: changed
