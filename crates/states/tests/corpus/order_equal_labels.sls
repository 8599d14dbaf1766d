z:
  test.nop:
    - order: 7
a:
  test.nop:
    - order: 7
m:
  test.succeed_with_changes:
    - order: 7
