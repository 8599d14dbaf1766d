one:
  test.succeed_with_changes:
    - comment: well done
two:
  test.nop:
    - comment: nothing
