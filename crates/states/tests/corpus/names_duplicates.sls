many:
  test.nop:
    - names: [one, two, one]
