include:
  - ..above
own: test.nop
