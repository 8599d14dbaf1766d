include:
  - inc.one
exclude:
  - id: inc two
own: test.nop
