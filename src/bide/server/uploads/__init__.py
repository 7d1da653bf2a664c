"""Files on their way in, whichever way they come: all end in a blob and, when asked for, in a job.

`reception` is what the HTTP edge speaks to; `staging` has the bytes until they are whole. However many arrive at once,
`lane` and the reception's door see to it that whoever asks for a status is answered in between.
"""
