one:
  test.nop: []
