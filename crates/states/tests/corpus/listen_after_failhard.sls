listener:
  test.nop:
    - listen:
      - test: changed
changed: test.succeed_with_changes
bad:
  test.fail_without_changes:
    - failhard: True
never: test.nop
