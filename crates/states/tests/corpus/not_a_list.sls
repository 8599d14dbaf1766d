one:
  test.nop:
    name: x
