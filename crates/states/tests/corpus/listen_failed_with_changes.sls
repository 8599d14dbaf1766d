listener:
  test.nop:
    - listen:
      - test: bad
bad: test.fail_with_changes
