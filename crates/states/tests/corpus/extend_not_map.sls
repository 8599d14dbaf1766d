extend:
  - one
own: test.nop
