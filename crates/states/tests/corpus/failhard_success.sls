good:
  test.nop:
    - failhard: True
after: test.nop
