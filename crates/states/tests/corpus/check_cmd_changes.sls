one:
  test.succeed_with_changes:
    - check_cmd: 'true'
two:
  test.nop:
    - onchanges:
      - test: one
