include:
  - inc.one
exclude:
  - inc.one
own: test.nop
