bad: test.fail_without_changes
rescue:
  test.succeed_with_changes:
    - onfail:
      - test: bad
after rescue:
  test.nop:
    - onchanges:
      - test: rescue
