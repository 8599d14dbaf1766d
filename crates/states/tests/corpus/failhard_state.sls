bad:
  test.fail_without_changes:
    - failhard: True
never: test.nop
