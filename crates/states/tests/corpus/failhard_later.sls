one: test.nop
bad: test.fail_without_changes
still: test.nop
hard:
  test.fail_with_changes:
    - failhard: True
never: test.nop
