a:
  test.nop:
    - order: foo
b:
  test.nop: []
