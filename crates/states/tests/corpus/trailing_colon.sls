one:
  test.nop:
