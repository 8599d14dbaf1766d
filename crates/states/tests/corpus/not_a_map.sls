one:
  - test.nop
